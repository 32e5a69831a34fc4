import { exitCodes } from '../terminal/exit-codes.ts'
import type { Command } from './command.ts'
import { commonFlags, type FlagSpec } from './flags.ts'
import { padText, type Style, textWidth, wrapText } from '../terminal/text.ts'

const widest = 100
const flagColumn = 30

export function commandHelp(command: Command, options: { readonly columns: number; readonly style: Style }): string {
  const width = Math.min(widest, Math.max(60, options.columns))
  const { style } = options
  const lines: string[] = []
  const heading = (text: string): void => void lines.push('', style.bold(text))

  lines.push(`${style.bold('Usage:')} ${usageLine(command)}`, '', ...wrapText(command.description, width))
  if (command.arguments.length > 0) {
    heading('Arguments')
    for (const argument of command.arguments) lines.push(...entry(`<${argument.name}>`, sentence(argument.help), width))
  }
  for (const [group, entries] of flagGroups(command)) {
    heading(group)
    for (const { flag, help } of entries) lines.push(...entry(flag, help, width))
  }
  heading('Examples')
  for (const [line, explanation] of Object.entries(command.examples)) {
    lines.push(`  ${style.dim(`# ${explanation}`)}`, `  ${style.accent(line)}`)
  }
  heading('Exit codes')
  for (const [name, code] of Object.entries(exitCodes)) {
    const meaning = command.exitCodes[name as keyof typeof exitCodes]
    if (meaning !== undefined) lines.push(...entry(String(code), meaning, width, 6))
  }
  return `${lines.join('\n')}\n`
}

function usageLine(command: Command): string {
  const args = command.arguments.map(({ name, required, isList }) => {
    return (required ? `<${name}>` : `[${name}]`) + (isList ? '…' : '')
  })
  return ['millrace', command.name, ...args, '[flags]'].join(' ')
}

function flagGroups(command: Command) {
  const listed = ([name, spec]: [string, FlagSpec]) => ({
    group: spec.group,
    flag: flagName(name, spec),
    help: spec.default === undefined ? spec.help : `${spec.help} [default: ${spec.default}]`,
  })
  const prefixed = Object.entries(command.prefixes ?? {}).map(([prefix, { group, value, help }]) => ({
    group,
    flag: `    --${prefix}.${value}`,
    help,
  }))
  const all = [...Object.entries(command.flags).map(listed), ...prefixed, ...Object.entries(commonFlags).map(listed)]
  return Map.groupBy(all, ({ group }) => group)
}

function flagName(name: string, spec: FlagSpec): string {
  const short = spec.short ? `-${spec.short}, ` : '    '
  const value = spec.value ?? (spec.choices ? spec.choices.join('|') : '')
  if (spec.kind === 'switch') return `${short}--${name}`
  return spec.kind === 'optional' ? `${short}--${name} [${value}]` : `${short}--${name} ${value || '<value>'}`
}

/** The name with its help beside it, or below it if the name is too long. */
function entry(name: string, help: string, width: number, column = flagColumn): readonly string[] {
  const helpLines = wrapText(help, width - column - 2)
  const indent = ' '.repeat(column + 2)
  if (textWidth(name) >= column) return [`  ${name}`, ...helpLines.map((line) => indent + line)]
  return helpLines.map((line, index) => (index === 0 ? `  ${padText(name, column)}${line}` : indent + line))
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`
}
