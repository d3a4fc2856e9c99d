"""A page to watch a stream on: error, speed, edges, whom the hedge trusts, what happened.

In flow observations, one every so often (:func:`observe`, :func:`observe_report`); a :class:`Feed` keeps a bounded
history of them and hands them on to listeners; out flows one page without a build step, served (:func:`routes`,
:func:`serve_in_thread`) or written to one file (:func:`write_page`). Nothing here knows how models learn.
"""

from streamboost.dashboard.export import write_page
from streamboost.dashboard.feed import Feed, Message, Subscription
from streamboost.dashboard.observation import observe, observe_report
from streamboost.dashboard.routes import routes
from streamboost.dashboard.server import Running, serve_in_thread

__all__ = ["Feed", "Message", "Running", "Subscription", "observe", "observe_report", "routes", "serve_in_thread",
           "write_page"]  # fmt: skip
