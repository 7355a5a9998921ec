//! One process: sources, fetch, prepare, deliver, meter.
