//! Noise: how much longer the same work takes now and then, and what that costs a large program.
//!
//! Fixed Work Quantum (FWQ: Lawrence Livermore National Laboratory) measures it; the formula of
//! Tsafrir, Etsion, Feitelson and Kirkpatrick ("System noise, OS clock ticks, and fine-grained
//! parallel applications", ICS 2005) scales it up, as paper 003 does in section 4.3.
//! Rooms: [`fwq`] works and takes times, [`slowdown`] is the arithmetic, [`plot`] draws.

pub(crate) mod fwq;
pub(crate) mod plot;
pub(crate) mod slowdown;
