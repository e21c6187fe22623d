//! The pure engine: telemetry parsing, rule conditions, grant windows and signatures.
