//! UCP's functions and structures as C declares them, and how they are found.
//!
//! Here: one table. Not here: what is asked of them ([`super::worker`], [`super::endpoint`]).
//! Source: `ucp/api/ucp.h`, `ucp/api/ucp_def.h` and `ucs/type/status.h` of UCX 1.13. Later versions append fields,
//! which a mask guards, and are told which version we know (`ucp_init_version`).

#![expect(unsafe_code, reason = "symbols of another library")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use hayase_dynlib::Missing;

/// `ucs_status_t`.
pub(super) type Code = c_int;
/// `ucp_worker_h`, `ucp_ep_h`, `ucp_context_h`, `ucp_mem_h`, a request: all of them pointers to what is not declared.
pub(super) type Handle = *mut c_void;

pub(super) const OK: Code = 0;
pub(super) const IN_PROGRESS: Code = 1;
pub(super) const INVALID_PARAM: Code = -5;
pub(super) const CANCELED: Code = -16;
/// `UCS_ERR_LAST`: a pointer from there on is a status.
const CODE_MIN: Code = -100;

/// What the header says that the structures below are of.
pub(super) const API_VERSION: (c_uint, c_uint) = (1, 13);

pub(super) const PARAM_FEATURES: u64 = 1 << 0;
pub(super) const PARAM_NAME: u64 = 1 << 8;
pub(super) const FEATURE_WAKEUP: u64 = 1 << 4;
pub(super) const FEATURE_AM: u64 = 1 << 6;
pub(super) const WORKER_PARAM_THREAD_MODE: u64 = 1 << 0;
pub(super) const THREAD_MODE_SINGLE: c_int = 0;
pub(super) const EP_PARAM_REMOTE_ADDRESS: u64 = 1 << 0;
pub(super) const EP_PARAM_ERR_HANDLING_MODE: u64 = 1 << 1;
pub(super) const EP_PARAM_ERR_HANDLER: u64 = 1 << 2;
pub(super) const ERR_HANDLING_MODE_PEER: c_int = 1;
pub(super) const AM_HANDLER_ID: u64 = 1 << 0;
pub(super) const AM_HANDLER_FLAGS: u64 = 1 << 1;
pub(super) const AM_HANDLER_CB: u64 = 1 << 2;
pub(super) const AM_HANDLER_ARG: u64 = 1 << 3;
pub(super) const AM_FLAG_WHOLE_MSG: u32 = 1 << 0;
pub(super) const AM_RECV_FLAG_RNDV: u64 = 1 << 17;
pub(super) const AM_SEND_FLAG_EAGER: u32 = 1 << 1;
pub(super) const AM_SEND_FLAG_RNDV: u32 = 1 << 2;
pub(super) const OP_CALLBACK: u32 = 1 << 1;
pub(super) const OP_USER_DATA: u32 = 1 << 2;
pub(super) const OP_FLAGS: u32 = 1 << 4;
pub(super) const OP_MEMH: u32 = 1 << 8;
pub(super) const EP_CLOSE_FLAG_FORCE: u32 = 1 << 0;
pub(super) const MEMORY_PARAM_ADDRESS: u64 = 1 << 0;
pub(super) const MEMORY_PARAM_LENGTH: u64 = 1 << 1;
pub(super) const MEMORY_PARAM_TYPE: u64 = 1 << 4;
pub(super) const MEMORY_TYPE_HOST: c_int = 0;

/// `ucp_params_t`.
#[repr(C)]
pub(super) struct Params {
    pub(super) field_mask: u64,
    pub(super) features: u64,
    pub(super) request_size: usize,
    pub(super) request_init: *const c_void,
    pub(super) request_cleanup: *const c_void,
    pub(super) tag_sender_mask: u64,
    pub(super) mt_workers_shared: c_int,
    pub(super) estimated_num_eps: usize,
    pub(super) estimated_num_ppn: usize,
    pub(super) name: *const c_char,
}

/// `ucp_mem_map_params_t`.
#[repr(C)]
pub(super) struct MemoryParams {
    pub(super) field_mask: u64,
    pub(super) address: *mut c_void,
    pub(super) length: usize,
    pub(super) flags: c_uint,
    pub(super) prot: c_uint,
    pub(super) memory_type: c_int,
}

/// `ucp_worker_params_t`.
#[repr(C)]
pub(super) struct WorkerParams {
    pub(super) field_mask: u64,
    pub(super) thread_mode: c_int,
    pub(super) cpu_mask: [u64; 16],
    pub(super) events: c_uint,
    pub(super) user_data: *mut c_void,
    pub(super) event_fd: c_int,
    pub(super) flags: u64,
    pub(super) name: *const c_char,
    pub(super) am_alignment: usize,
    pub(super) client_id: u64,
}

/// `ucp_err_handler_cb_t`.
pub(super) type ErrorCallback = unsafe extern "C" fn(*mut c_void, Handle, Code);

/// `ucs_sock_addr_t`.
#[repr(C)]
pub(super) struct SocketAddress {
    pub(super) address: *const c_void,
    pub(super) len: u32,
}

/// `ucp_ep_params_t`.
#[repr(C)]
pub(super) struct EndpointParams {
    pub(super) field_mask: u64,
    pub(super) address: *const c_void,
    pub(super) err_mode: c_int,
    pub(super) err_callback: Option<ErrorCallback>,
    pub(super) err_arg: *mut c_void,
    pub(super) user_data: *mut c_void,
    pub(super) flags: c_uint,
    pub(super) sockaddr: SocketAddress,
    pub(super) conn_request: Handle,
    pub(super) name: *const c_char,
    pub(super) local_sockaddr: SocketAddress,
}

/// `ucp_am_recv_param_t`.
#[repr(C)]
pub(super) struct MessageParam {
    pub(super) recv_attr: u64,
    pub(super) reply_ep: Handle,
}

/// `ucp_am_recv_callback_t`.
pub(super) type MessageCallback = unsafe extern "C" fn(
    *mut c_void,
    *const c_void,
    usize,
    *mut c_void,
    usize,
    *const MessageParam,
) -> Code;

/// `ucp_am_handler_param_t`.
#[repr(C)]
pub(super) struct HandlerParams {
    pub(super) field_mask: u64,
    pub(super) id: c_uint,
    pub(super) flags: u32,
    pub(super) callback: Option<MessageCallback>,
    pub(super) arg: *mut c_void,
}

/// `ucp_request_param_t`; the callback is one of a union, as its user says.
#[repr(C)]
pub(super) struct RequestParams {
    pub(super) op_attr_mask: u32,
    pub(super) flags: u32,
    pub(super) request: *mut c_void,
    pub(super) callback: *const c_void,
    pub(super) datatype: u64,
    pub(super) user_data: *mut c_void,
    pub(super) reply_buffer: *mut c_void,
    pub(super) memory_type: c_int,
    pub(super) recv_info: *mut c_void,
    pub(super) memh: Handle,
}

impl RequestParams {
    /// Of a call that no callback ends.
    pub(super) fn without_callback() -> Self {
        Self {
            op_attr_mask: OP_FLAGS,
            flags: 0,
            request: null_mut(),
            callback: null(),
            datatype: 0,
            user_data: null_mut(),
            reply_buffer: null_mut(),
            memory_type: 0,
            recv_info: null_mut(),
            memh: null_mut(),
        }
    }
}

/// Why UCX can not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLoaded {
    /// `dlopen` says so.
    #[error("libucp.so.0 cannot be loaded: {0}")]
    Absent(String),
    /// It lacks a function.
    #[error("libucp.so.0 is older than UCX 1.13: it has no {0}")]
    Lacks(&'static str),
}

impl NotLoaded {
    /// What the user can try next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Absent(_) => {
                "install UCX on every node (Debian and Ubuntu: package `libucx0`; Fedora and its kin: `ucx`), \
                 or use `--transport tcp`"
            }
            Self::Lacks(_) => "install UCX 1.13 or later, or use `--transport tcp`",
        }
    }
}

hayase_dynlib::functions! {
    /// One pointer for each function.
    pub(super) struct Table;
    ucp_get_version(*mut c_uint, *mut c_uint, *mut c_uint);
    ucp_config_read(*const c_char, *const c_char, *mut Handle) -> Code;
    ucp_config_modify(Handle, *const c_char, *const c_char) -> Code;
    ucp_config_release(Handle);
    ucp_init_version(c_uint, c_uint, *const Params, Handle, *mut Handle) -> Code;
    ucp_cleanup(Handle);
    ucp_mem_map(Handle, *const MemoryParams, *mut Handle) -> Code;
    ucp_mem_unmap(Handle, Handle) -> Code;
    ucp_worker_create(Handle, *const WorkerParams, *mut Handle) -> Code;
    ucp_worker_get_address(Handle, *mut *mut c_void, *mut usize) -> Code;
    ucp_worker_release_address(Handle, *mut c_void);
    ucp_worker_get_efd(Handle, *mut c_int) -> Code;
    ucp_worker_arm(Handle) -> Code;
    ucp_worker_progress(Handle) -> c_uint;
    ucp_worker_set_am_recv_handler(Handle, *const HandlerParams) -> Code;
    ucp_ep_create(Handle, *const EndpointParams, *mut Handle) -> Code;
    ucp_ep_close_nbx(Handle, *const RequestParams) -> Handle;
    ucp_am_send_nbx(Handle, c_uint, *const c_void, usize, *const c_void, usize, *const RequestParams) -> Handle;
    ucp_am_recv_data_nbx(Handle, *mut c_void, *mut c_void, usize, *const RequestParams) -> Handle;
    ucp_am_data_release(Handle, *mut c_void);
    ucp_request_check_status(Handle) -> Code;
    ucp_request_free(Handle);
    ucs_status_string(Code) -> *const c_char;
}

impl Table {
    /// UCX's words for a status.
    pub(super) fn words(&self, code: Code) -> String {
        // SAFETY: answers a text that lives as long as the library, for any number.
        let words = unsafe { CStr::from_ptr((self.ucs_status_string)(code)) };
        words.to_string_lossy().into_owned()
    }

    /// As `1.13.1`.
    pub(super) fn version(&self) -> String {
        let (mut major, mut minor, mut release) = (0, 0, 0);
        // SAFETY: three places for three numbers.
        unsafe { (self.ucp_get_version)(&raw mut major, &raw mut minor, &raw mut release) };
        format!("{major}.{minor}.{release}")
    }
}

/// The status of a call that failed.
pub(super) fn checked(code: Code) -> Result<(), Code> {
    if code == OK { Ok(()) } else { Err(code) }
}

/// What a function that may go on behind its return (`ucs_status_ptr_t`) answered.
#[derive(Clone, Copy)]
pub(super) enum Started {
    Done(Code),
    /// A request, to be freed once it is done.
    Request(Handle),
}

impl Started {
    pub(super) fn from_raw(answer: Handle) -> Self {
        match answer as isize {
            0 => Self::Done(OK),
            code if code < 0 && code >= CODE_MIN as isize => Self::Done(code as Code),
            _ => Self::Request(answer),
        }
    }
}

/// The library of this process, loaded when it is first asked for and never unloaded.
pub(super) fn library() -> Result<&'static Table, NotLoaded> {
    static TABLE: OnceLock<Result<Table, NotLoaded>> = OnceLock::new();
    TABLE.get_or_init(|| Ok(Table::load(c"libucp.so.0")?)).as_ref().map_err(Clone::clone)
}

impl From<Missing> for NotLoaded {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Library(why) => Self::Absent(why),
            Missing::Function(name) => Self::Lacks(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// As a C compiler says of the header of 1.13.1.
    #[test]
    fn structures_are_as_in_c() {
        let sizes = [
            size_of::<Params>(),
            size_of::<WorkerParams>(),
            size_of::<EndpointParams>(),
            size_of::<HandlerParams>(),
            size_of::<RequestParams>(),
            size_of::<MessageParam>(),
            size_of::<MemoryParams>(),
        ];
        assert_eq!(sizes, [80, 200, 104, 32, 72, 16, 40]);
        assert_eq!(offset_of!(Params, estimated_num_eps), 56);
        assert_eq!(offset_of!(WorkerParams, events), 144);
        assert_eq!(offset_of!(EndpointParams, err_callback), 24);
        assert_eq!(offset_of!(EndpointParams, conn_request), 72);
        assert_eq!(offset_of!(RequestParams, user_data), 32);
        assert_eq!(offset_of!(RequestParams, memh), 64);
        assert_eq!(offset_of!(MemoryParams, address), 8);
        assert_eq!(offset_of!(MemoryParams, length), 16);
        assert_eq!(offset_of!(MemoryParams, memory_type), 32);
    }

    #[test]
    fn answers_are_told_apart() {
        let code = |answer: isize| match Started::from_raw(answer as Handle) {
            Started::Done(code) => Some(code),
            Started::Request(_) => None,
        };
        assert_eq!((code(0), code(-25), code(-100)), (Some(OK), Some(-25), Some(-100)));
        assert_eq!((code(0x7f00_0000_1000), code(-101)), (None, None));
    }
}
