"""``python -m services.engine``: run the engine in this terminal."""

from .service import Engine

if __name__ == "__main__":
    Engine.main()
