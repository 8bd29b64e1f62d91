"""What this project uses of vLLM: sampling parameters, and its OpenAI server."""
