import { inspect } from 'node:util'
import { type ErrorCode, MillraceError } from '../../errors/index.ts'
import type { Output } from './output.ts'

/** The exit codes of the process. They are part of the interface: scripts branch on them. */
export const exitCodes = {
  ok: 0,
  failed: 1,
  usage: 2,
  unscored: 3,
  hungUp: 129,
  interrupted: 130,
  terminated: 143,
} as const

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes]

const usageCodes: ReadonlySet<ErrorCode> = new Set(['usage', 'config_invalid'])

/** Reports an error in one message and returns the exit code. An error without a code is a bug of ours. */
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
