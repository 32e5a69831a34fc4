import { describe, expect, it } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { command as evalCommand } from '../commands/eval/eval-command.ts'
import { parseCommandLine } from './parse-command-line.ts'

const parse = (...args: string[]) => parseCommandLine(evalCommand, args)

function refusal(...args: string[]): string {
  try {
    parse(...args)
  } catch (error) {
    if (error instanceof MillraceError && error.code === 'usage') return error.rawMessage
    throw error
  }
  throw new Error(`${args.join(' ')} was accepted`)
}

describe('parseCommandLine', () => {
  it('reads long and short flags, joined and separate, before and after the argument', () => {
    expect(parse('-n4', 'arithmetic', '-m', 'sim', '-c', '256', '--limit=10', '--json')).toMatchObject({
      arguments: ['arithmetic'],
      flags: { attempts: 4, model: 'sim', concurrency: 256, limit: 10, json: true },
    })
  })

  it.each([
    [['-m', 'a', '-m', 'b'], { model: 'b' }, '-m is given more than once; the last one counts'],
    [['-m', 'a', '-m', 'b', '--model', 'c'], { model: 'c' }, '--model is given more than once; the last one counts'],
    [['-n4', '--attempts', '8'], { attempts: 8 }, '--attempts is given more than once; the last one counts'],
  ])('uses the last of several values, with a notice: %j', (args, flags, notice) => {
    expect(parse('x', ...args)).toMatchObject({ flags, notices: [notice] })
  })

  it('uses the last value of an environment option, with a notice', () => {
    const { prefixed, notices } = parse('x', '--env.a=1', '--env.b=1', '--env.a=2')
    expect(prefixed).toEqual({ env: { a: 2, b: 1 } })
    expect(notices).toEqual(['--env.a is given more than once; the last one counts'])
  })

  it('gives no notice if a value is only repeated', () => {
    expect(parse('x', '-m', 'a', '-m', 'a', '--json', '--json').notices).toEqual([])
  })

  it('treats a repeated switch like a single one', () => {
    expect(parse('x', '--json', '--json').flags).toEqual({ json: true })
  })

  it('has no value for an absent flag', () => {
    expect(parse('arithmetic').flags).toEqual({})
  })

  it('reads durations, repeated texts, choices, negative and grouped numbers', () => {
    const { flags } = parse(
      'x',
      '--timeout',
      '5m',
      '--stop',
      'a',
      '--stop=b',
      '--api',
      'responses',
      '--seed',
      '-3',
      '--limit',
      '1_000',
    )
    expect(flags).toMatchObject({ timeout: 300_000, stop: ['a', 'b'], api: 'responses', seed: -3, limit: 1000 })
  })

  it('reads environment options as JSON if possible, otherwise as text', () => {
    const { prefixed, arguments: args } = parse(
      'x',
      '--env.size=5',
      '--env.name',
      'short',
      '--env.strict',
      '--env.quoted="5"',
      '--env.range.from=1',
      '--env.range.to=2',
      '--env.list=[1,2]',
      '--sim.faults.cut=0.1',
    )
    expect(args).toEqual(['x'])
    expect(prefixed['env']).toEqual({
      size: 5,
      name: 'short',
      strict: true,
      quoted: '5',
      range: { from: 1, to: 2 },
      list: [1, 2],
    })
    expect(prefixed['sim']).toEqual({ faults: { cut: 0.1 } })
  })

  it('reads a name after --resume once the environment is given', () => {
    expect(parse('arithmetic', '-m', 'sim', '--resume', 'nightly')).toMatchObject({
      arguments: ['arithmetic'],
      flags: { resume: 'nightly' },
    })
    expect(parse('arithmetic', '--resume', '--json').flags).toMatchObject({ resume: '', json: true })
    expect(parse('-m', 'sim', '--resume', 'arithmetic')).toMatchObject({
      arguments: ['arithmetic'],
      flags: { resume: '' },
    })
    expect(parse('arithmetic', '--resume=nightly').flags.resume).toBe('nightly')
  })

  it.each([
    [['x', '--concurency', '4'], 'unknown flag --concurency; did you mean --concurrency?'],
    [['x', '--zzz'], 'unknown flag --zzz; millrace eval --help lists them all'],
    [['x', '-z'], 'unknown flag -z; millrace eval --help lists them all'],
    [['x', '-m'], '-m needs a value: -m <name>'],
    [['x', '--model', '--json'], '--model needs a value: --model <name>'],
    [['x', '--json=1'], '--json takes no value; write it alone, or leave it out'],
    [['x', '-n', 'four'], '-n is a whole number of at least 1, not four'],
    [['x', '-n', '0'], '-n is a whole number of at least 1, not 0'],
    [['x', '-n', '1.5'], '-n is a whole number of at least 1, not 1.5'],
    [['x', '--temperature=-1'], '--temperature is a number of at least 0, not -1'],
    [['x', '--seed', 'x'], '--seed is a whole number, not x'],
    [['x', '--timeout', 'soon'], '--timeout is a duration such as 90 (seconds), 90s, 5m, 1h30m or 30d, not soon'],
    [['x', '--api', 'response'], '--api is one of chat, responses, messages, not response; did you mean responses?'],
    [['x', 'y'], 'unexpected argument "y"; see millrace eval --help'],
    [['x', '--env.=1'], '--env. lacks the name of the option: --env.<option>=<value>'],
  ])('refuses %j in one sentence', (args, message) => {
    expect(refusal(...args)).toBe(message)
  })

  it('names a missing argument', () => {
    expect(refusal('-m', 'sim')).toMatch(/^millrace eval needs an environment/)
  })

  it('accepts --help without the required arguments', () => {
    expect('help' in parse('--help').flags).toBe(true)
  })
})
