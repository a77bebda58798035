"""``python -m services.worker``: run the worker in this terminal."""

from .service import Worker

if __name__ == "__main__":
    Worker.main()
