import { describeParameters } from '../../tools/index.ts'
import { columns } from '../format/columns.ts'
import { formatDuration } from '../format/duration.ts'
import { printable, printableLine } from '../format/printable.ts'
import { shellQuote } from '../format/shell-quote.ts'
import type { Style } from '../format/style.ts'
import { fitText, wrapText } from '../format/text-width.ts'
import type { ListedServer, ListedTool } from './list-tools.ts'

interface Frame {
  /** The configuration as it was given on the command line. */
  readonly config: string
  /** See `programName`. */
  readonly program: string
  readonly width: number
  readonly style: Style
}

const indent = '  '

/** A table of the servers, the errors of some, then each server's tools, one per line. */
export function listText(servers: readonly ListedServer[], frame: Frame): readonly string[] {
  const { style } = frame
  if (servers.length === 0) return ['no tools: there are neither servers nor tools of its own']
  const table = columns({
    columns: [
      { title: 'server', shrinks: true },
      { title: 'tools', align: 'right' },
      { title: 'started', align: 'right' },
      { title: 'transport' },
      { title: '' },
    ],
    rows: servers.map(({ server, tools, ms, transport, error }) => [
      server,
      error === undefined ? String(tools.length) : '–',
      ms === undefined ? '–' : formatDuration(ms),
      transport,
      error === undefined ? '' : style.bad('failed'),
    ]),
    ...frame,
  })
  const failures = servers.flatMap(({ server, error }) => (error === undefined ? [] : failure(server, error, frame)))
  const tools = servers.flatMap((server) => (server.tools.length === 0 ? [] : toolLines(server, frame)))
  return [...table, ...failures, ...tools]
}

function failure(server: string, error: string, { config, program, width, style }: Frame): string[] {
  const lines = printable(error)
    .split('\n')
    .flatMap((line) => wrapText(line, Math.max(40, width - indent.length)))
  const more = style.dim(`${program} tools doctor ${shellQuote([config, '--server', server])} shows more`)
  return ['', style.bold(server), ...lines.map((line) => indent + style.bad(line)), indent + more]
}

function toolLines({ server, tools }: ListedServer, frame: Frame): string[] {
  return ['', frame.style.bold(server), ...tools.map((tool) => toolLine(tool, frame))]
}

function toolLine({ name, description, inputSchema }: ListedTool, { width, style }: Frame): string {
  // A schema without `properties` is an object of which nothing is known.
  const parameters = 'properties' in inputSchema ? describeParameters(inputSchema) : '{}'
  const about = description === undefined ? '' : `  ${style.dim(printableLine(description))}`
  return fitText(`${indent}${style.accent(printableLine(name))} ${printableLine(parameters)}${about}`, width)
}
