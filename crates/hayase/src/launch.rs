//! Starting, entering and ending the nodes of a job, from the side of the person who types.
//!
//! Rooms: [`options`] (what can be typed), [`plan`] (what was typed becomes the job's settings, checked), [`ground`]
//! (directories of a job, made before and removed after), [`storage_nodes`] (which nodes carry storage), [`start`] (supervisors up, all or none), [`node_process`] (one of them),
//! [`node_error`], [`stop`], [`end_node`], [`drain`] (waiting for the tier), [`enter`] (running a program on a node),
//! [`tree`] (nodes that are other hosts), [`hosts`] (lists of hosts), [`allocation`] (what a batch system gave us),
//! [`deadline`] (when it takes that back), [`preload`] (launchers of MPI). What a node does by itself is in
//! [`crate::supervisor`].

pub(crate) mod allocation;
pub(crate) mod deadline;
pub(crate) mod drain;
mod end_node;
pub(crate) mod enter;
pub(crate) mod ground;
pub(crate) mod hosts;
mod node_error;
mod node_process;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod preload;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod storage_nodes;
pub(crate) mod tree;

pub(crate) use allocation::LaunchError;
pub(crate) use deadline::DeadlineError;
pub(crate) use enter::EnterError;
pub(crate) use node_error::NodeError;
pub(crate) use plan::PlanError;
pub(crate) use preload::PreloadError;
pub(crate) use storage_nodes::StorageNodesError;
