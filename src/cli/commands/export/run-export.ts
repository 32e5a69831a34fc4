import type { MillraceError } from '../../../errors/index.ts'
import { type EndRow, exportRows } from '../../../rows/index.ts'
import { andList } from '../../../kit/index.ts'
import { exportRollouts, type FoundRun, type RunReader } from '../../../store/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import { type FlagTable, type FlagValues, definedFields } from '../../command-line/flags.ts'
import { exitCodes, type ExitCode } from '../../terminal/exit-codes.ts'
import { usageError } from '../../command-line/flag-value.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { type Output, DelayedProgress } from '../../terminal/output.ts'
import { isGatewayRun, locateRun, nextStep, readRun, runsRoot } from '../../stored-runs/stored-run.ts'
import { writeOutputFile } from '../../terminal/write-output-file.ts'
import { formatCount, formatQuantity } from '../../terminal/format.ts'
import { recordFlags, rowFlags, type exportFlags } from './export-command.ts'

const maxShownDamaged = 20

export async function runExport(
  { arguments: [name = ''], flags }: Invocation<typeof exportFlags>,
  io: CommandIo,
): Promise<ExitCode> {
  const found = await locateRun(name, runsRoot(flags.runs, io), io)
  const isGateway = isGatewayRun(found)
  const rows = flags.rows ?? (isGateway ? 'interactions' : undefined)
  refuseFlags(found, flags, rows === undefined ? rowFlags : recordFlags)
  if (!isGateway && flags.tenant !== undefined) {
    throw usageError(`--tenant is for runs of a gateway, and run ${found.name} holds rollouts; leave it out`)
  }
  if (flags.format !== undefined && flags.format !== 'jsonl' && flags.output === undefined && io.stdout.isTTY) {
    throw usageError(`--format ${flags.format} cannot be shown in a terminal; write it to a file with -o`)
  }
  if (!isGateway && (flags.tokens || rows) && found.run.config['captureTokens'] !== true) {
    const remedy = '`eval --tokens` makes a run that has them'
    const problem = `run ${found.name} was made without --tokens, so its turns have no tokens; ${remedy}`
    if (rows === 'merged') throw usageError(problem)
    void io.stderr.line(problem)
  }
  const damaged = new Damaged(isGateway ? 'session' : 'rollout', io.stderr)
  await readRun(found, async (reader) => {
    const chunks = rows ? rowChunks(reader, { ...flags, rows }, damaged) : rolloutLines(reader, flags, damaged, io)
    await writeChunks(chunks, flags.output, io)
    if (!isGateway && found.run.state !== 'complete' && reader.counts().ended === 0) {
      void io.stderr.line(`no rollout of run ${found.name} has ended yet; ${nextStep(found)}`)
    }
  })
  return damaged.count === 0 ? exitCodes.ok : exitCodes.failed
}

async function writeChunks(chunks: Chunks, output: string | undefined, io: CommandIo): Promise<void> {
  if (output === undefined) {
    for await (const chunk of chunks) {
      if (io.stdout.readerGone.aborted) return
      await io.stdout.write(chunk)
    }
    return
  }
  let written = ''
  const counted = async function* (): AsyncGenerator<string | Uint8Array> {
    written = yield* chunks
  }
  const where = await writeOutputFile(counted(), { name: output, flag: '-o', cwd: io.cwd })
  void io.stderr.line(`wrote ${written} to ${where}`)
}

/** Reports the sessions or rollouts that are missing, up to `maxShownDamaged`: the export has a row for each. */
class Damaged {
  readonly what: 'session' | 'rollout'
  readonly #stderr: Output
  count = 0

  constructor(what: 'session' | 'rollout', stderr: Output) {
    this.what = what
    this.#stderr = stderr
  }

  readonly add = (id: string, { rawMessage, cause }: MillraceError): void => {
    this.count += 1
    if (this.count === maxShownDamaged + 1)
      void this.#stderr.line('further damage is not shown: see the rows of kind "damaged"')
    if (this.count > maxShownDamaged) return
    const detail = cause instanceof Error ? ` (${cause.message})` : ''
    const leftOut = this.what === 'session' ? 'left out from there on' : 'left out'
    void this.#stderr.line(`${this.what} ${id} is damaged, and ${leftOut}: ${rawMessage}${detail}`)
  }
}

/** The chunks of an export. The return value says in words what was written. */
type Chunks = AsyncGenerator<string | Uint8Array, string, void>

async function* rolloutLines(
  reader: RunReader,
  flags: FlagValues<typeof exportFlags>,
  damaged: Damaged,
  { stderr }: CommandIo,
): Chunks {
  const options = { tokens: flags.tokens === true, taskRows: flags['no-task-rows'] !== true, onDamaged: damaged.add }
  using progress = new DelayedProgress(stderr, 'writing rollouts')
  for await (const line of exportRollouts(reader, { format: 'jsonl', ...options })) {
    if (flags.output !== undefined) progress.add()
    yield line
  }
  const among = damaged.count > 0 ? ` (${formatCount(damaged.count)} damaged)` : ''
  return formatQuantity(progress.count, 'rollout') + among
}

async function* rowChunks(
  reader: RunReader,
  flags: FlagValues<typeof rowFlags> & { readonly rows: 'interactions' | 'merged' },
  damaged: Damaged,
): Chunks {
  const { tenant, session, group, discount, trees, advantage, rows, 'main-tree': mainTree } = flags
  if (tenant !== undefined) requireTenant(reader, tenant)
  else if (group !== undefined) requireOneTenant(reader, group)
  const skipWithoutTokens = flags['skip-without-tokens'] === true
  const end = yield* exportRows(reader, {
    rows,
    format: flags.format ?? 'jsonl',
    skipWithoutTokens,
    onDamaged: damaged.add,
    ...definedFields({ tenant, session, group, discount, mainTree, trees, advantage }),
    ...(flags['include-discarded'] && { include: 'discarded' }),
  })
  // Only training rows leave them out.
  const leftOut = rows === 'merged' && skipWithoutTokens ? end.withoutTokens : 0
  const odd = [
    end.sideRows > 0 && `${formatQuantity(end.sideRows, 'row')} of side calls`,
    end.emptySessions > 0 && `${formatCount(end.emptySessions)} empty`,
    end.damagedSessions > 0 && `${formatCount(end.damagedSessions)} damaged`,
    leftOut > 0 && `${formatCount(leftOut)} ${leftOut === 1 ? 'reply' : 'replies'} without tokens left out`,
    end.driftedTurns > 0 && driftText(end),
  ].filter((part) => part !== false)
  const among = odd.length > 0 ? ` (${odd.join(', ')})` : ''
  return `${formatQuantity(end.rows, 'row')} of ${formatQuantity(end.sessions, damaged.what)}${among}`
}

function driftText({ driftedTurns, laterTurns, driftedTokens }: EndRow): string {
  const turns = `${formatCount(driftedTurns)} of ${formatQuantity(laterTurns, 'later turn')} drifted`
  return `${turns}, ${formatQuantity(driftedTokens, 'token')} affected`
}

function requireTenant({ sessions }: RunReader, tenant: string): void {
  if (sessions.sessions({ tenant, limit: 1 }).length > 0) return
  throw usageError(`there is no session of tenant ${tenant}; leave --tenant out to export the sessions of all tenants`)
}

/** Throws if several tenants have a group of this name: groups of different tenants must not be compared with each other. */
function requireOneTenant({ sessions }: RunReader, group: string): void {
  const tenants = new Set<string>()
  for (const { tenant } of sessions.each({ group })) {
    tenants.add(tenant)
    if (tenants.size < 2) continue
    throw usageError(`tenants ${andList([...tenants].toSorted())} each have a group ${group}; choose one with --tenant`)
  }
}

/** Refuses a flag that means nothing for what is exported: whoever gives it is mistaken. */
function refuseFlags(found: FoundRun, flags: Readonly<Record<string, unknown>>, unfit: FlagTable): void {
  // `--format jsonl` is the form of recorded rollouts, too.
  const misplaced = Object.keys(unfit).find((flag) => flags[flag] !== undefined && flags[flag] !== 'jsonl')
  if (misplaced === undefined) return
  if (unfit === rowFlags) throw usageError(`--${misplaced} is for rows; add --rows merged or --rows interactions`)
  const remedy = isGatewayRun(found) ? 'leave it out: rows are always complete' : 'leave it or --rows out'
  throw usageError(`--${misplaced} is for rollouts as they are recorded, not for rows; ${remedy}`)
}
