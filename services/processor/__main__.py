"""`python -m services.processor`: the processor in this terminal, by hand."""

from .service import Processor

if __name__ == "__main__":
    Processor.main()
