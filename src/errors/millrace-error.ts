import { errorCodes, type ErrorCode } from './codes.ts'

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
    return thrown instanceof Error ? thrown.message || thrown.name : String(thrown)
  } catch {
    return 'something that cannot be put into words'
  }
}
