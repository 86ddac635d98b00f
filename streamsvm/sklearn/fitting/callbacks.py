"""scikit-learn's callbacks: a fit is a task, and every pass over the rows one of its subtasks.

scikit-learn has them from 1.9 on, as an experiment (``sklearn.callback``, https://scikit-learn.org/1.9/developers/callbacks.html): a bar of
progress and a monitor of scores are such, and whatever follows ``FitCallback``. They are set by ``set_callbacks``, which estimators do
not have with an earlier scikit-learn; ``on_pass`` is there with all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from streamsvm.aliases import ByName

Method = TypeVar("Method", bound=Callable[..., Any])

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    SUPPORTED = True
except ModuleNotFoundError:
    SUPPORTED = False

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """What there is before scikit-learn 1.9: nothing."""

    def with_callbacks(method: Method) -> Method:
        """Return a method as it is."""
        return method


@dataclass(slots=True)
class FitTasks:
    """The tasks of a fit, as callbacks are told of them."""

    estimator: Any
    """What is fitted."""
    known: ByName
    """What callbacks may ask for: X, y and metadata, as they were given."""
    context: Any = None
    """The task of the fit; None where scikit-learn has no callbacks."""

    @classmethod
    def of(cls, estimator: Any, X: Any, y: Any, sample_weight: Any) -> FitTasks:
        """Return those of a fit, which begins. How many passes it will take is not known."""
        known = {"X": X, "y": y, "metadata": None if sample_weight is None else {"sample_weight": sample_weight}}
        if not SUPPORTED:
            return cls(estimator, known)
        context = estimator._init_callback_context(max_subtasks=None)  # noqa: SLF001 (documented for estimators of others)
        context.call_on_fit_task_begin(estimator=estimator, **known)
        return cls(estimator, known, context)

    def passed(self) -> bool:
        """Tell that a pass is closed, and return whether the fit is to end.

        The task of the pass begins and ends here, as what it will come to is known at its end alone.
        """
        if self.context is None:
            return False
        task = self.context.subcontext(task_name="pass")
        task.call_on_fit_task_begin(estimator=self.estimator, **self.known)
        return bool(task.call_on_fit_task_end(estimator=self.estimator, **self.known))

    def ended(self) -> None:
        """Tell that the fit is over."""
        if self.context is not None:
            self.context.call_on_fit_task_end(estimator=self.estimator, **self.known, reconstruction_attributes={})
