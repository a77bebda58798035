"""An LLM inference engine whose every subsystem is a standalone service process on zmqengine."""
