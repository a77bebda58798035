"""``python -m services.scheduler``: run the scheduler in this terminal."""

from .service import Scheduler

if __name__ == "__main__":
    Scheduler.main()
