"""The processor: text to tokens, tokens to text, and a request's way through scheduler and engine."""
