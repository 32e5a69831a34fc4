import type { MillraceError } from '../../../errors/index.ts'
import { exportSessions } from '../../../gateway/index.ts'
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
import { rolloutFlags, sessionFlags, type exportFlags } from './export-command.ts'

const maxShownDamaged = 20

export async function runExport(
  { arguments: [name = ''], flags }: Invocation<typeof exportFlags>,
  io: CommandIo,
): Promise<ExitCode> {
  const found = await locateRun(name, runsRoot(flags.runs, io), io)
  const isGateway = isGatewayRun(found)
  refuseFlags(found, flags, isGateway ? rolloutFlags : sessionFlags)
  if (flags.format === 'binary' && flags.output === undefined && io.stdout.isTTY) {
    throw usageError('--format binary cannot be shown in a terminal; write it to a file with -o')
  }
  if (flags.tokens && found.run.config['captureTokens'] !== true) {
    const remedy = '`eval --tokens` makes a run that has them'
    void io.stderr.line(`run ${found.name} was made without --tokens, so its turns have no tokens; ${remedy}`)
  }
  const damaged = new Damaged(isGateway ? 'session' : 'rollout', io.stderr)
  await readRun(found, async (reader) => {
    const chunks = isGateway ? sessionChunks(reader, flags, damaged.add) : rolloutLines(reader, flags, damaged, io)
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
  readonly #what: 'session' | 'rollout'
  readonly #stderr: Output
  count = 0

  constructor(what: 'session' | 'rollout', stderr: Output) {
    this.#what = what
    this.#stderr = stderr
  }

  readonly add = (id: string, { rawMessage, cause }: MillraceError): void => {
    this.count += 1
    if (this.count === maxShownDamaged + 1)
      void this.#stderr.line('further damage is not shown: see the rows of kind "damaged"')
    if (this.count > maxShownDamaged) return
    const detail = cause instanceof Error ? ` (${cause.message})` : ''
    const leftOut = this.#what === 'session' ? 'left out from there on' : 'left out'
    void this.#stderr.line(`${this.#what} ${id} is damaged, and ${leftOut}: ${rawMessage}${detail}`)
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

async function* sessionChunks(
  reader: RunReader,
  flags: FlagValues<typeof sessionFlags>,
  onDamaged: Damaged['add'],
): Chunks {
  const { tenant, session, group, discount, trees, 'main-tree': mainTree } = flags
  if (tenant !== undefined) requireTenant(reader, tenant)
  else if (group !== undefined) requireOneTenant(reader, group)
  const skipWithoutTokens = flags['skip-without-tokens'] === true
  const end = yield* exportSessions(reader, {
    rows: flags.rows ?? 'interactions',
    format: flags.format ?? 'jsonl',
    skipWithoutTokens,
    onDamaged,
    ...definedFields({ tenant, session, group, discount, mainTree, trees }),
    ...(flags['include-discarded'] && { include: 'discarded' }),
  })
  const { rows, sideRows, sessions, emptySessions, damagedSessions, withoutTokens, laterTurns, driftedTurns } = end
  // Only training rows leave them out.
  const leftOut = flags.rows === 'merged' && skipWithoutTokens ? withoutTokens : 0
  const odd = [
    sideRows > 0 && `${formatQuantity(sideRows, 'row')} of side calls`,
    emptySessions > 0 && `${formatCount(emptySessions)} empty`,
    damagedSessions > 0 && `${formatCount(damagedSessions)} damaged`,
    leftOut > 0 && `${formatCount(leftOut)} ${leftOut === 1 ? 'reply' : 'replies'} without tokens left out`,
    driftedTurns > 0 && `${formatCount(driftedTurns)} of ${formatQuantity(laterTurns, 'later turn')} drifted`,
  ].filter((part) => part !== false)
  const among = odd.length > 0 ? ` (${odd.join(', ')})` : ''
  return `${formatQuantity(rows, 'row')} of ${formatQuantity(sessions, 'session')}${among}`
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

/** Refuses a flag that means nothing for this kind of run: whoever gives it is mistaken about the run. */
function refuseFlags(found: FoundRun, flags: Readonly<Record<string, unknown>>, unfit: FlagTable): void {
  // `--format jsonl` is allowed for rollouts: it is their only format.
  const misplaced = Object.keys(unfit).find((flag) => flags[flag] !== undefined && flags[flag] !== 'jsonl')
  if (misplaced === undefined) return
  const { name } = found
  throw usageError(
    isGatewayRun(found)
      ? `--${misplaced} applies to rollouts, but run ${name} holds the sessions of a gateway, whose rows are always complete; leave it out`
      : `--${misplaced} applies to the sessions of a gateway, but run ${name} holds rollouts; leave it out`,
  )
}
