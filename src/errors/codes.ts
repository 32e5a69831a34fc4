/**
 * Every way something can go wrong, as a closed set. `retryable` says whether the same thing, tried again later,
 * could succeed without anybody changing anything. Each code has a row in docs/errors.md; a test checks that.
 */
export const errorCodes = {
  // What the user gave us
  usage: { retryable: false },
  config_invalid: { retryable: false },
  file_not_found: { retryable: false },
  env_load_failed: { retryable: false },
  env_invalid: { retryable: false },
  task_invalid: { retryable: false },
  tasks_failed: { retryable: false },

  // The run folder
  run_not_found: { retryable: false },
  run_in_use: { retryable: false },
  run_mismatch: { retryable: false },
  folder_unwritable: { retryable: false },
  disk_full: { retryable: false },
  store_failed: { retryable: false },
  store_version: { retryable: false },
  run_gone: { retryable: false },

  // What a backend answered, or did not
  model_connect: { retryable: true },
  model_timeout: { retryable: true },
  model_conflict: { retryable: true },
  model_rate_limited: { retryable: true },
  model_server_error: { retryable: true },
  model_overloaded: { retryable: true },
  model_truncated: { retryable: true },
  model_malformed: { retryable: true },
  model_auth: { retryable: false },
  model_not_found: { retryable: false },
  model_rejected: { retryable: false },
  context_length: { retryable: false },

  // The sessions of a gateway
  session_not_found: { retryable: false },
  session_ended: { retryable: false },
  session_damaged: { retryable: false },

  // Inside a rollout
  budget_exhausted: { retryable: false },
  tool_failed: { retryable: false },
  tool_timeout: { retryable: false },
  tool_infra: { retryable: true },
  setup_failed: { retryable: false },
  teardown_failed: { retryable: false },
  agent_failed: { retryable: false },
  reward_failed: { retryable: false },
  replay_diverged: { retryable: true },
  worker_lost: { retryable: true },

  // Lifecycle
  cancelled: { retryable: false },
  closed: { retryable: false },
  overloaded: { retryable: true },
  internal: { retryable: false },
} as const satisfies Record<string, { retryable: boolean }>

export type ErrorCode = keyof typeof errorCodes
