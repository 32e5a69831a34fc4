import { inspect } from 'node:util'
import { MillraceError, type ErrorCode } from '../../errors/index.ts'
import { exitCodes, type ExitCode } from './exit-codes.ts'
import type { Output } from './output.ts'

/** Mistakes in what was typed or configured, as opposed to things that went wrong. */
const usageCodes: ReadonlySet<ErrorCode> = new Set(['usage', 'config_invalid'])

/**
 * Says what went wrong in one message, cause and next step, and gives the exit code. The stack is for whoever asks with
 * `--debug`; an error without a code is a fault of ours and says so.
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
