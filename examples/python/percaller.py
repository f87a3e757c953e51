#!/usr/bin/python3
"""An admission policy in Python: each caller may have a few requests at a time,
and all others of its requests wait in order of priority and arrival."""

from usher_plugin import serve


def check(options):
    """Tells what is wrong with the options: pairs of an option and a message."""
    if not isinstance(options["max"], int) or options["max"] < 1:
        yield "max", "must be a whole number of at least 1"


def build(options):
    def room(request, running):
        return sum(r.caller == request.caller for r in running) < options["max"]

    return room


if __name__ == "__main__":
    serve("percaller", "1.0", {"max": 2}, check, build)
