import type { Command, FlagSpec } from './command.ts'
import { commonFlags } from './common-flags.ts'
import type { Style } from '../format/style.ts'
import { padText, textWidth, wrapText } from '../format/text-width.ts'

const widest = 100
const flagColumn = 30

/** The help of one command, made from its table: usage, purpose, flags by group, examples, exit codes. */
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
    for (const [flag, help] of entries) lines.push(...entry(flag, help, width))
  }
  heading('Examples')
  for (const { command: line, explanation } of command.examples) {
    lines.push(`  ${style.dim(`# ${explanation}`)}`, `  ${style.accent(line)}`)
  }
  heading('Exit codes')
  for (const { code, meaning } of command.exitCodes) lines.push(...entry(String(code), meaning, width, 6))
  return `${lines.join('\n')}\n`
}

function usageLine(command: Command): string {
  const words = command.arguments.map(({ name, required }) => (required ? `<${name}>` : `[${name}]`))
  return ['millrace', command.name, ...words, '[flags]'].join(' ')
}

function flagGroups(command: Command): Map<string, (readonly [flag: string, help: string])[]> {
  const groups = new Map<string, (readonly [string, string])[]>()
  const add = (group: string, flag: string, help: string): void => {
    const entries = groups.get(group)
    if (entries) entries.push([flag, help])
    else groups.set(group, [[flag, help]])
  }
  for (const [name, spec] of Object.entries(command.flags)) add(spec.group, flagName(name, spec), flagHelp(spec))
  for (const [prefix, spec] of Object.entries(command.prefixes ?? {})) {
    add(spec.group, `    --${prefix}.${spec.value}`, spec.help)
  }
  for (const [name, spec] of Object.entries<FlagSpec>(commonFlags))
    add(spec.group, flagName(name, spec), flagHelp(spec))
  return groups
}

function flagName(name: string, spec: FlagSpec): string {
  const short = spec.short ? `-${spec.short}, ` : '    '
  const value = spec.value ?? (spec.choices ? spec.choices.join('|') : '')
  if (spec.kind === 'switch') return `${short}--${name}`
  return spec.kind === 'optional' ? `${short}--${name} [${value}]` : `${short}--${name} ${value || '<value>'}`
}

function flagHelp(spec: FlagSpec): string {
  return spec.default === undefined ? spec.help : `${spec.help} [default: ${spec.default}]`
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
