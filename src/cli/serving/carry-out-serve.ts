import { settleHeapForRollouts } from '../../kit/index.ts'
import { HttpDoor, requireAccessKey, requireFreePort, RolloutService } from '../../serve/index.ts'
import { Logger } from '../../telemetry/index.ts'
import type { Invocation } from '../command-line/command.ts'
import { defaultPort, type ServeFlags } from '../commands/serve-command.ts'
import { evaluateOptions } from '../eval/evaluate-options.ts'
import type { ExitCode } from '../process/exit-codes.ts'
import { exitNotice } from '../process/exit-notice.ts'
import type { CommandIo } from '../process/io.ts'
import { keyIn } from '../command-line/key-variable.ts'
import { ServerLifetime, type Served } from './_server-lifetime.ts'

/** How often the tool servers are looked at. */
const watchServersMs = 500

/** Carries out `millrace serve`: from its flags to its exit code. */
export async function carryOutServe(invocation: Invocation<ServeFlags>, io: CommandIo): Promise<ExitCode> {
  settleHeapForRollouts()
  const { flags } = invocation
  const options = await evaluateOptions(invocation, io)
  const { host = '127.0.0.1', port = defaultPort } = flags
  const accessKey = keyIn('access-key-env', flags['access-key-env'], 'MILLRACE_API_KEY', io)
  // Checked before a run is made, or an earlier one is continued.
  requireAccessKey(host, accessKey)
  await requireFreePort(host, port)
  await using logger = new Logger(flags['log-level'] === undefined ? {} : { level: flags['log-level'] })
  using lifetime = new ServerLifetime(io, logger, 'server')
  using _exit = exitNotice(
    io,
    'The same command finishes what was accepted, and would end the same way: with --workers it costs one rollout.',
  )
  try {
    await using service = await RolloutService.open({
      ...options,
      ...(flags['max-queued'] !== undefined && { bounds: { maxQueuedRollouts: flags['max-queued'] } }),
      onSettled: (record) => logger.rolloutSettled(service.info.name, record),
      signal: lifetime.signal,
    })
    lifetime.begin(servedBy(service), () => {
      logger.lines.info({ running: service.status().running }, 'draining: running rollouts may end')
    })
    await using door = await HttpDoor.open({
      service,
      port,
      host,
      ...(accessKey !== undefined && { accessKey }),
      onFault: (error) => logger.lines.error({ err: error }, 'a request failed'),
    })
    announce(io, logger, door, service)
    using _servers = watchServers(service, logger)
    const how = await lifetime.end()
    // After a second signal, clients that still wait for replies are told so before the door closes.
    if (how === 'stopped') await service.close()
    return lifetime.exitCode(how)
  } catch (error) {
    return lifetime.exitCodeFor(error)
  }
}

function announce(io: CommandIo, logger: Logger, { url }: HttpDoor, { info }: RolloutService): void {
  const { style } = io.stdout
  for (const notice of info.notices) logger.lines.info({ run: info.name }, notice)
  void io.stdout.line(`serving on ${style.bold(url)} (run ${info.name})`)
}

/** Logs when a tool server is away and when it is back, once each. */
function watchServers(service: RolloutService, logger: Logger): Disposable {
  const away = new Set<string>()
  const look = (): void => {
    for (const { server, state, waiting, awayBecause } of service.status().servers) {
      if (state === 'away' && !away.has(server)) {
        away.add(server)
        logger.lines.warn({ server, waiting, why: awayBecause }, 'a tool server is away: rollouts that need it wait')
      } else if (state !== 'away' && away.delete(server)) {
        logger.lines.info({ server }, 'the tool server is back')
      }
    }
  }
  const timer = setInterval(look, watchServersMs).unref()
  return { [Symbol.dispose]: () => clearInterval(timer) }
}

function servedBy(service: RolloutService): Served {
  return {
    failure: service.failure,
    drain: () => service.drain(),
    loops: () => {
      const { lag, storeLag } = service.status()
      return { front: lag, store: storeLag }
    },
    workers: () => service.status().workers,
  }
}
