"""The worker: holds weights and KV cache, runs steps, samples. torch is imported by nothing but this service.

`service` is the room's door. Behind it, `startup` loads and measures, `runner` runs steps on a `Decoder` (`decoder`)
over a `KVCache` (`kv_cache`), and `sampler` chooses tokens. `loading.load_model` works without the rest of the project.
"""
