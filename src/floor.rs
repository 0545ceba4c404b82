//! The paths that nothing may touch, whatever a policy says: pure.
