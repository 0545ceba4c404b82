//! **Reading** the user's tree: containment by handle. Never writes, never follows a string where a
//! handle can be had.
