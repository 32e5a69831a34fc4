import { MillraceError } from '../errors/index.ts'
import {
  defaultTenant,
  findModels,
  GatewayServer,
  requireAdminKeys,
  type GatewayConfig,
  type TenantKey,
} from '../serve/index.ts'
import { LagWatch, Logger } from '../telemetry/index.ts'
import type { FlagValues, Invocation } from './command.ts'
import { defaultGatewayPort, type GatewayFlags } from './commands/gateway-command.ts'
import { exitCodes, type ExitCode } from './exit-codes.ts'
import { readGatewayConfig } from './gateway-config-file.ts'
import { findingLines } from './gateway-findings.ts'
import { Interrupts } from './interrupts.ts'
import type { CommandIo } from './io.ts'
import { runsRoot } from './stored-run.ts'
import { StrayErrors } from './stray-errors.ts'

/** A loop that ran so late once is worth a line. */
const lagThresholdMs = 250
const defaultRun = 'gateway'
const defaultKeyVariable = 'MILLRACE_ADMIN_KEY'

type Flags = FlagValues<GatewayFlags>

/** What `millrace gateway` does: from its flags to its exit code. */
export async function carryOutGateway({ flags }: Invocation<GatewayFlags>, io: CommandIo): Promise<ExitCode> {
  const file = flags.config === undefined ? undefined : await readGatewayConfig(flags.config, io)
  const config = file?.config
  const host = flags.host ?? config?.host ?? '127.0.0.1'
  const keys = keysOf(flags, config, io)
  // Before any backend is asked and any run is made.
  requireAdminKeys(host, keys)
  await using logger = new Logger(flags['log-level'] === undefined ? {} : { level: flags['log-level'] })
  const stopping = new AbortController()
  const ended = Promise.withResolvers<'drained' | 'stopped'>()
  let server: GatewayServer | undefined
  const stop = (): void => {
    stopping.abort(new MillraceError('cancelled', 'stopped before the gateway was ready'))
    ended.resolve('stopped')
  }
  using interrupts = new Interrupts(io.events, {
    drain: () => {
      // Before it is ready there is nothing to wait for.
      if (!server) return stop()
      logger.lines.info({ running: server.gateway.status().running }, 'draining: running requests may end')
      void server.drain().then(() => ended.resolve('drained'), ended.reject)
    },
    stop,
  })
  using stray = new StrayErrors(io.events, {
    onFirstRejection: (text) => logger.lines.warn(text),
    onException: stop,
  })
  try {
    const found = await findModels({
      backends: flags.backend ?? [],
      ...(flags.model !== undefined && { model: flags.model }),
      ...(config && { models: config.models }),
      env: io.env,
      signal: stopping.signal,
    })
    for (const line of findingLines(found, io.stdout)) void io.stdout.line(line)
    await using opened = await GatewayServer.open({
      ...found,
      ...(config && { aliases: config.aliases, bounds: config.bounds }),
      keys,
      ...(file && { secrets: file.secrets }),
      host,
      port: flags.port ?? config?.port ?? defaultGatewayPort,
      run: { root: runsRoot(flags.runs, io), name: flags.run ?? config?.run ?? defaultRun },
      env: io.env,
      onRequest: (request) => logger.requestEnded(request),
      onAlarm: (session, alarms) => logger.lines.warn({ session, alarms }, 'a session ended with a record of no use'),
      onFault: (error) => logger.lines.error({ err: error }, 'a request failed'),
      signal: stopping.signal,
    })
    server = opened
    using _lag = watchLag(logger, server)
    announce(io, logger, server)
    server.failure.addEventListener('abort', () => ended.resolve('stopped'), { once: true })
    const how = await ended.promise
    if (stray.exception) throw stray.exception
    if (server.failure.aborted) throw server.failure.reason
    return how === 'drained' ? exitCodes.ok : (interrupts.exitCode ?? exitCodes.failed)
  } catch (error) {
    if (stopping.signal.aborted && interrupts.exitCode !== undefined && !stray.exception) return interrupts.exitCode
    throw error
  }
}

/** Those of the file, and that of the environment. */
function keysOf(flags: Flags, config: GatewayConfig | undefined, { env }: CommandIo): readonly TenantKey[] {
  const variable = flags['admin-key-env']
  const key = env[variable ?? defaultKeyVariable] || undefined
  // A key that was asked for and is not there must not mean that another will do.
  if (key === undefined && variable !== undefined) {
    throw new MillraceError(
      'usage',
      `--admin-key-env names ${variable}, which is not set: set it, or leave out the flag`,
    )
  }
  return [...(config?.keys ?? []), ...(key === undefined ? [] : [{ tenant: defaultTenant, key }])]
}

function announce(io: CommandIo, logger: Logger, { url, madeKey, notices }: GatewayServer): void {
  const { style } = io.stdout
  for (const notice of notices) logger.lines.info(notice)
  if (madeKey !== undefined) void io.stdout.line(`admin key ${style.bold(madeKey)} (kept in the run's folder)`)
  void io.stdout.line(`gateway on ${style.bold(url)}`)
}

function watchLag(logger: Logger, server: GatewayServer): LagWatch {
  return new LagWatch({ logger, thresholdMs: lagThresholdMs, loops: () => server.lag(), workers: () => [] })
}
