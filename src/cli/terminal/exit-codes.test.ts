import { describe, expect, it } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { fakeProcess } from '../../../test/support/cli/fake-terminal.ts'
import { openIo } from './io.ts'
import { reportError } from './exit-codes.ts'

function report(thrown: unknown, debug = false): { code: number; text: string } {
  const parts = fakeProcess()
  using io = openIo(parts)
  const code = reportError(thrown, io.stderr, { debug })
  return { code, text: parts.stderr.text }
}

describe('reportError', () => {
  it('prints a coded error on one line, without a stack', () => {
    const { code, text } = report(new MillraceError('file_not_found', 'no file tasks.jsonl; check the path'))
    expect(code).toBe(1)
    expect(text).toBe('error: no file tasks.jsonl; check the path [file_not_found]\n')
  })

  it.each(['usage', 'config_invalid'] as const)('returns 2 for an error in the command (%s)', (code) => {
    expect(report(new MillraceError(code, 'x')).code).toBe(2)
  })

  it('shows the stack and the cause with --debug', () => {
    const error = new MillraceError('env_load_failed', 'x', { cause: new TypeError('the reason') })
    const { text } = report(error, true)
    expect(text).toContain('exit-codes.test.ts')
    expect(text).toContain('the reason')
  })

  it('reports an unexpected error as a bug', () => {
    const { code, text } = report(new TypeError('x is not a function'))
    expect(code).toBe(1)
    expect(text).toContain('TypeError: x is not a function')
    expect(text).toContain('This is a bug in Millrace. Run it again with --debug')
    expect(text).not.toContain('at ')
    expect(report('thrown text').text).toContain('thrown text')
  })
})
