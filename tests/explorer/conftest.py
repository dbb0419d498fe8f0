"""Pages are opened in one headless Chromium."""

from browsing import chromium, quiet_page
from exploring import explorer

__all__ = ["chromium", "explorer", "quiet_page"]
