"""Models: what there is to serve, where its files are, and how they are read. Shared by the services that need them.

`store` keeps models in the user's cache, `gguf_file` reads GGUF files, `load_error` says what is wrong with one.
"""
