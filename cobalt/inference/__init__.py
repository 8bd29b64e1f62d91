"""Multi-turn code generation: engines behind one protocol, and the driver that keeps them busy."""
