//! The native module of the forebay Python package.
