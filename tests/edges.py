"A setting's edges: the last values that are taken, and the first that are refused."

import pytest


def takes_and_refuses(call, taken, refused, says: str) -> None:
    "`call(value)` goes well for every value taken; for every one refused it is a ValueError that says so."
    for value in taken:
        call(value)
    for value in refused:
        with pytest.raises(ValueError, match=says):
            call(value)
