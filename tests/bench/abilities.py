"""What tidegate and the queues beside which it is measured do for a job, and what not."""

from typing import Final

TABLE: Final = """
                                              tidegate              pgqueuer + fork       Procrastinate + fork
  before the start
    quota, window, hold, capacity             a gate says why       limit per entrypoint  queues, locks, priority
    inputs checked and staged                 yes                   no                    no
    submitted with the caller's own data      no                    in one transaction    in one transaction
  the run
    started once though any process is killed yes                   no: picked again      no: stays `doing`, then
                                                                    while it may run      retried by hand
    goes on when the worker dies              yes, and is followed  as an orphan          as an orphan
    stop reaches every process of it          yes, after a grace    the code's own matter the code's own matter
    another user and directory per tenant     yes (as root)         no                    no
    time limit                                yes                   no                    no
  after the exit
    exit code stored                          yes                   by this benchmark     by this benchmark
    stdout and stderr kept                    yes                   no                    no
    outputs copied back and verified          yes                   no                    no
    GPU time metered                          yes                   no                    no
  seen from outside
    every change an event others subscribe to yes                   no                    no
    states of a job with times and reasons    five stages           rows of a log         rows of events
    needs                                     PostgreSQL, NATS,     PostgreSQL and one    PostgreSQL and one
                                              seven processes       process               process
"""
