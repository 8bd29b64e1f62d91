"""A bar that a thread shows, apart from the console: importing tqdm takes a while."""

import math
import threading
from collections.abc import Callable
from typing import Any

from tqdm import tqdm


class Bar(tqdm):
    """Shown every ``interval_s`` seconds, so that its time goes on while nothing ends; ``update`` shows nothing.

    ``look`` is called before, in that thread, and at the end: it brings the bar up to date.
    """

    def __init__(self, interval_s: float, look: Callable[[], None], **options: Any) -> None:
        self._ended, self._look = threading.Event(), look
        super().__init__(mininterval=math.inf, **options)
        self._shower = threading.Thread(target=self._show_at_times, args=(interval_s,), daemon=True)
        self._shower.start()

    def _show_at_times(self, interval_s: float) -> None:
        while not self._ended.wait(interval_s):
            self._look()
            self.delay = 0  # from now on it is there, and its end is a line of its own
            self.refresh()

    def close(self) -> None:
        if not self.disable:
            self._ended.set()
            self._shower.join()
            self._look()
        super().close()
