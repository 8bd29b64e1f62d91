"""What every command needs: flags with their bounds, the life of a run and its manifest, progress, exit codes."""
