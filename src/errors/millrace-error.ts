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

  // What a client of a gateway meets
  gateway_unreachable: { retryable: true },
  gateway_refused: { retryable: false },
  backends_failed: { retryable: false },

  // Inside a rollout
  budget_exhausted: { retryable: false },
  weights_stale: { retryable: false },
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

type ErrorData = Record<string, string | number | boolean | null | undefined>

/** What crosses a thread, a socket or a file: `data` goes along, `cause` stays behind for the log. */
export interface WireError {
  code: ErrorCode
  message: string
  data?: ErrorData
}

/**
 * The one error class. Branch on `code`, never on text. `data` is plain JSON and may reach clients;
 * `cause` is for whoever reads the log.
 */
export class MillraceError extends Error {
  override readonly name = 'MillraceError'
  readonly code: ErrorCode
  readonly rawMessage: string
  readonly data: ErrorData

  constructor(code: ErrorCode, message: string, options: { data?: ErrorData; cause?: unknown } = {}) {
    super(`[${code}] ${message}`, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.rawMessage = message
    this.data = options.data ?? {}
  }

  get retryable(): boolean {
    return errorCodes[this.code].retryable
  }

  /** Any thrown value as a coded error; one that is coded already keeps its code. */
  static from(thrown: unknown, code: ErrorCode): MillraceError {
    if (thrown instanceof MillraceError) return thrown
    return new MillraceError(code, describe(thrown), { cause: thrown })
  }

  toWire(): WireError {
    const wire: WireError = { code: this.code, message: this.rawMessage }
    // Somebody's own may hold what cannot be written down; what is left out there must not cost all the rest.
    const data = Object.entries(this.data).filter(([, value]) => isPlain(value))
    if (data.length > 0) wire.data = Object.fromEntries(data)
    return wire
  }

  static fromWire(wire: WireError): MillraceError {
    return new MillraceError(wire.code, wire.message, wire.data ? { data: wire.data } : {})
  }
}

function isPlain(value: unknown): boolean {
  return value === null || ['string', 'number', 'boolean'].includes(typeof value)
}

/** Never throws, although what was thrown may have code of its own for this: a failure must not become another one. */
function describe(thrown: unknown): string {
  try {
    // Several parts failed to close; the one that failed first is the `suppressed` one.
    if (thrown instanceof SuppressedError) return `${describe(thrown.suppressed)}; ${describe(thrown.error)}`
    return thrown instanceof Error ? thrown.message || thrown.name : String(thrown)
  } catch {
    return 'a value that cannot be shown as text'
  }
}

/**
 * What clients are told of a fault of the server's own, at every HTTP server. Where its record is kept, and what mends it, is for
 * whoever runs it, and in the log.
 */
export const ownFaults: Readonly<Partial<Record<ErrorCode, string>>> = {
  internal: 'the server failed with an internal error',
  disk_full: 'the disk of the server is full, so it can record nothing more; tell its operator',
  store_failed: 'the record of this server cannot be read or written; tell its operator',
  run_gone: 'the record of this server was deleted or moved; tell its operator',
}
