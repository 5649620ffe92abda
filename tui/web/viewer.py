"""The dashboard of one viewer: what it does otherwise than in a terminal."""

from tui.app import Dashboard
from tui.feed.shared import Seat
from tui.web.terminal import Outlet, PageDriver


class WebDashboard(Dashboard):
    """A dashboard whose terminal is a browser's. It acts on nothing and knows no file of the host.

    Which keys, screens and commands do not exist there, tui.screens says (`on_host`).
    """

    copied_words = "copied"

    def __init__(self, seat: Seat, outlet: Outlet, *, theme: str) -> None:
        super().__init__(seat, theme=theme)
        self.outlet = outlet
        self.driver_class = PageDriver

    @property
    def terminal(self) -> PageDriver | None:
        """Return the browser's terminal; None until the app has begun."""
        return self._driver if isinstance(self._driver, PageDriver) else None

    @property
    def may_change(self) -> bool:
        return False

    def own_process(self) -> None:
        """Take nothing: the process belongs to all viewers."""

    def keep(self, name: str, text: str) -> None:
        """Let the browser download a file."""
        self.outlet.send(download=name, text=text)
        self.say(f"downloading {name}", "good")

    def action_suspend_process(self) -> None:
        """Do nothing: there is no process of this viewer's own."""
