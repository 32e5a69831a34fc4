import { describe, expect, it } from 'vitest'
import { commandHelp } from './command-help.ts'
import { command as evalCommand } from '../commands/eval/eval-command.ts'
import { createStyle, textWidth } from '../terminal/text.ts'

describe('commandHelp', () => {
  const help = commandHelp(evalCommand, { columns: 80, style: createStyle(false) })

  it('names every flag, its default, and every flag prefix', () => {
    for (const [name, spec] of Object.entries(evalCommand.flags)) {
      expect(help).toContain(`--${name}`)
      if ('default' in spec) expect(help.replaceAll(/\s+/g, ' ')).toContain(`[default: ${spec.default}]`)
    }
    for (const prefix of Object.keys(evalCommand.prefixes ?? {})) expect(help).toContain(`--${prefix}.<`)
    expect(help).toContain('-n, --attempts <count>')
  })

  it('has usage, examples with the command, and exit codes', () => {
    expect(help).toMatch(/^Usage: millrace eval <environment> \[flags\]\n/)
    for (const command of Object.keys(evalCommand.examples)) expect(help).toContain(command)
    for (const code of [0, 1, 2, 3, 129, 130, 143]) expect(help).toMatch(new RegExp(`^ {2}${code} `, 'm'))
  })

  it('fits the terminal width, except for examples', () => {
    const examples = new Set(
      Object.entries(evalCommand.examples).flatMap(([command, explanation]) => [command, `# ${explanation}`]),
    )
    const long = help.split('\n').filter((line) => !examples.has(line.trim()) && textWidth(line) > 80)
    expect(long).toEqual([])
  })
})
