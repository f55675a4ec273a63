//! Nothing: this package only names the sources that the demo fetches.
