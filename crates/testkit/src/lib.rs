//! Dev only: made datasets, slow and failing parts.
