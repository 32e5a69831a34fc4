import { inspect } from 'node:util'
import { MillraceError, type ErrorCode } from '../../errors/index.ts'
import { exitCodes, type ExitCode } from './exit-codes.ts'
import type { Output } from './output.ts'

/** Codes of mistakes in what was typed or configured, as opposed to failures. */
const usageCodes: ReadonlySet<ErrorCode> = new Set(['usage', 'config_invalid'])

/**
 * Reports an error in one message, with cause and next step, and returns the exit code. `--debug` adds the stack. An error
 * without a code is a bug of ours, and the message says so.
 */
export function reportError(thrown: unknown, stderr: Output, options: { readonly debug: boolean }): ExitCode {
  const { style } = stderr
  const label = style.bad('error:')
  const isKnown = thrown instanceof MillraceError && thrown.code !== 'internal'
  if (isKnown) {
    void stderr.line(`${label} ${thrown.rawMessage} ${style.dim(`[${thrown.code}]`)}`)
  } else {
    const message = thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown)
    void stderr.line(`${label} ${message}`)
    void stderr.line(`This is a bug in Millrace.${options.debug ? '' : ' Run it again with --debug for the details.'}`)
  }
  if (options.debug) void stderr.line(style.dim(inspect(thrown)))
  return isKnown && usageCodes.has(thrown.code) ? exitCodes.usage : exitCodes.failed
}
