"""The key ring for a command."""

from __future__ import annotations

from adapters.crypto.key_ring import MasterKeyRing
from app.config.settings import Settings
from app.runtime.start import KEY_FILE, StartupError
from app.wiring.adapters import load_key_ring, prepare_data_dir


def open_key_ring(settings: Settings) -> MasterKeyRing:
    """Makes no new one. Raises StartupError."""
    prepare_data_dir(settings.data_dir)
    if settings.secret_keys is None and not (settings.data_dir / KEY_FILE).exists():
        raise StartupError(f"There is no key ring in {settings.data_dir}. Set LATCHBOARD_DATA_DIR to where the service keeps it.")
    return load_key_ring(settings)
