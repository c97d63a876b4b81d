// SPDX-License-Identifier: Apache-2.0
//
// kvbm.h for the languages that SWIG serves. The header is the only description of the interface. This file lists the
// parts left out, and each language's file maps the argument patterns. Run SWIG with -DSWIGWORDSIZE64, so that 64-bit
// integers have one type on every platform.
%module kvbm

%{
#include <kvbm.h>
%}

%include <stdint.i>

// Tables of C functions are for C: the library calls a storage tier or a policy on its own threads.
%ignore kvbm_tier_table;
%ignore kvbm_tier_table_t;
%ignore kvbm_tier_item;
%ignore kvbm_tier_item_t;
%ignore kvbm_store_op;
%ignore kvbm_store_op_t;
%ignore kvbm_store_facts;
%ignore kvbm_store_facts_t;
%ignore kvbm_store_option;
%ignore kvbm_store_option_t;
%ignore kvbm_store_config;
%ignore kvbm_store_config_t;
%ignore kvbm_store_option_help;
%ignore kvbm_store_option_help_t;
%ignore kvbm_store_table;
%ignore kvbm_store_table_t;
%rename("$ignore", regexmatch$name="^KVBM_STORE_") "";
%ignore kvbm_policy_table;
%ignore kvbm_policy_table_t;
%ignore kvbm_tier::table;
%ignore kvbm_tier::table_user;
%ignore kvbm_tier::store;
%ignore kvbm_manager_options::policy_table;
%ignore kvbm_manager_options::policy_user;

// The log callback runs on any thread, also on one that is not known to the language's runtime.
%ignore kvbm_log_fn;
%ignore kvbm_context_options::log;
%ignore kvbm_context_options::log_user;
%ignore kvbm_context_options::log_level;

// Space for later fields; callers leave it zero.
%ignore reserved;
%ignore reserved2;
%ignore KVBM_API;
%ignore KVBM_OWN;
%ignore kvbm_error;
%ignore kvbm_error_t;

#if defined(SWIGPYTHON)
%include "python.i"
#elif defined(SWIGJAVA)
%include "java.i"
#endif

// SWIG does not follow #include: every header that kvbm.h includes, after those that it needs itself.
%include "kvbm_types.h"
%include "kvbm_plugin.h"
%include "kvbm.h"
%include "kvbm_cache.h"
%include "kvbm_codec.h"
%include "kvbm_device.h"
%include "kvbm_node.h"
%include "kvbm_session.h"
