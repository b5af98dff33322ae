# SPDX-License-Identifier: MIT OR Apache-2.0
"""Errors as a user meets them: what happened, why, and what to do next."""


class InputError(ValueError):
    """Something that was given cannot be used. Nothing was changed."""

    def __init__(self, what: str, why: str, next: str) -> None:
        super().__init__(what, why, next)
        self.what = what
        self.why = why
        self.next = next

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {self.next}"
