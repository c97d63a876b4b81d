// SPDX-License-Identifier: Apache-2.0
//! A context: configuration, worker threads, the I/O engine.

use std::ffi::{c_char, c_void, CStr};
use std::path::PathBuf;
use std::sync::Arc;

use libkvbm_sys as sys;

use crate::error::{check_version, explained, Error, Result};
use crate::handle::{c_string, options, pointer, read_text, Handle};

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Failures.
    Error,
    /// Warnings.
    #[default]
    Warning,
    /// Information.
    Info,
    /// In detail.
    Debug,
}

impl LogLevel {
    fn from_raw(level: i32) -> Self {
        match level {
            ..=0 => LogLevel::Off,
            1 => LogLevel::Error,
            2 => LogLevel::Warning,
            3 => LogLevel::Info,
            _ => LogLevel::Debug,
        }
    }
}

/// Receives log lines: level, component, text. It may run on any thread, also after the context was dropped and while
/// its children live, hence a plain function; it must not call this crate. A panic in it is caught and dropped.
pub type LogFn = fn(LogLevel, &str, &str);

/// How to create a [`Context`].
#[derive(Clone, Default)]
pub struct ContextOptions {
    /// Worker threads; 0 = from the configuration.
    pub threads: u32,
    /// A TOML file; `None` = `$KVBM_CONFIG`, or none.
    pub config_file: Option<PathBuf>,
    /// Keys and values that win over file and environment, as `("host.capacity", "8GiB")`.
    pub settings: Vec<(String, String)>,
    /// Where log lines go; `None` = nowhere.
    pub log: Option<LogFn>,
    /// Levels that are logged.
    pub log_level: LogLevel,
}

/// A context: configuration, worker threads, the I/O engine. Clones are the same context; it lives until its last child
/// is dropped.
#[derive(Clone)]
pub struct Context {
    pub(crate) handle: Arc<Handle<sys::kvbm_context>>,
}

unsafe extern "C" fn forward_log(user: *mut c_void, level: i32, component: *const c_char, text: *const c_char) {
    // SAFETY: `user` is the LogFn that create was given, and both strings are valid during the call.
    let (log, component, text) =
        unsafe { (std::mem::transmute::<*mut c_void, LogFn>(user), CStr::from_ptr(component), CStr::from_ptr(text)) };
    // A panic must not cross the library's frames.
    let _ = std::panic::catch_unwind(|| {
        log(LogLevel::from_raw(level), &component.to_string_lossy(), &text.to_string_lossy());
    });
}

impl Context {
    /// Creates a context. The configuration is resolved once, here: defaults, file, `KVBM_*` of the environment,
    /// settings; the later wins. Errors: CONFIG, NO_MEMORY; VERSION if the library is not the one that this crate was
    /// made for.
    pub fn new(given: &ContextOptions) -> Result<Context> {
        check_version()?;
        let mut options = options!(kvbm_context_options_init, kvbm_context_options_t);
        let file = match &given.config_file {
            None => None,
            Some(path) => {
                let path = path.to_str().ok_or_else(|| Error::invalid("config_file is not UTF-8"))?;
                Some(c_string("config_file", path)?)
            }
        };
        let mut texts = Vec::new();
        for (key, value) in &given.settings {
            texts.push((c_string("a setting's key", key)?, c_string(key, value)?));
        }
        let settings: Vec<_> =
            texts.iter().map(|(k, v)| sys::kvbm_setting_t { key: k.as_ptr(), value: v.as_ptr() }).collect();
        options.threads = given.threads;
        options.config_file = file.as_ref().map_or(std::ptr::null(), |f| f.as_ptr());
        options.settings = pointer(&settings);
        options.n_settings = settings.len();
        if let Some(log) = given.log.filter(|_| given.log_level != LogLevel::Off) {
            options.log = Some(forward_log);
            options.log_user = log as *mut c_void;
            options.log_level = given.log_level as i32;
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: everything that options point to lives until the call is over.
        explained(|err| unsafe { sys::kvbm_context_create(&options, &mut raw, err) })?;
        // SAFETY: the call has given an owned reference.
        Ok(Context { handle: Arc::new(unsafe { Handle::new(raw) }?) })
    }

    /// Creates a context with these settings and defaults for the rest.
    pub fn with_settings<K: Into<String>, V: Into<String>>(
        settings: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Context> {
        let settings = settings.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        Context::new(&ContextOptions { settings, ..Default::default() })
    }

    /// The effective configuration as TOML, each value with its origin as a comment.
    pub fn config(&self) -> Result<String> {
        let raw = self.handle.get()?;
        // SAFETY: the handle is live, and read_text gives room as it says.
        read_text(|out, capacity, needed| unsafe { sys::kvbm_context_config(raw, out, capacity, needed) })
    }

    /// The raw pointer, valid while this object is.
    pub fn as_raw(&self) -> *mut sys::kvbm_context {
        self.handle.raw()
    }
}

/// The table of all configuration options as Markdown.
pub fn config_reference() -> Result<String> {
    // SAFETY: read_text gives room as it says.
    read_text(|out, capacity, needed| unsafe { sys::kvbm_config_reference(out, capacity, needed) })
}
