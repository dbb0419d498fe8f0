"""Pages are opened in one headless Chromium."""

from browsing import chromium, quiet_page

__all__ = ["chromium", "quiet_page"]
