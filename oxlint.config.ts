import { defineConfig, type OxlintOverride } from 'oxlint'

/** From the top: each may import from those before it. docs/architecture.md says what they are for. */
export const layers = [
  'errors',
  'kit',
  'schema',
  'process',
  'http',
  'apis',
  'tool-formats',
  'tokenizer',
  'inference',
  'simulator',
  'tools',
  'env',
  'endpoint',
  'store',
  'rows',
  'agents',
  'nemo-gym',
  'rollout',
  'telemetry',
  'gateway',
  'worker',
  'eval',
  'serve',
  'client',
  'testing',
  'cli',
]

// Lint goes by the text of an import, as one writes it; src/layers.test.ts by where it leads.
const layerRules = layers.map((layer, place): OxlintOverride => ({
  files: [`src/${layer}/**/*.ts`],
  rules: {
    'no-restricted-imports': [
      'error',
      {
        patterns: [
          {
            group: [
              ...layers.slice(place + 1).map((below) => `**/${below}/**`),
              '**/src/index.ts',
              '../index.ts',
              '../../index.ts',
            ],
            message: `\`${layer}\` may import only from the layers above it: see docs/architecture.md#layers`,
          },
        ],
      },
    ],
  },
}))

export default defineConfig({
  plugins: ['typescript', 'import', 'unicorn', 'oxc'],
  categories: { correctness: 'error', suspicious: 'error', perf: 'error' },
  rules: {
    'no-console': 'error',
    'no-await-in-loop': 'off',
    'unicorn/no-array-sort': 'off',
    'unicorn/consistent-function-scoping': 'off',
    'import/no-unassigned-import': 'off',
    'no-underscore-dangle': 'off',
    'import/no-cycle': 'error',
    'typescript/no-explicit-any': 'error',
    'typescript/no-floating-promises': 'error',
    'typescript/switch-exhaustiveness-check': 'error',
    'typescript/consistent-type-imports': 'error',
    'typescript/no-unsafe-type-assertion': 'off',
    'import/no-default-export': 'error',
    'max-params': ['error', { max: 4 }],
    'unicorn/require-post-message-target-origin': 'off',
  },
  overrides: [
    ...layerRules,
    {
      files: ['src/cli/**', 'bench/**', 'scripts/**', 'examples/**', 'bin/**'],
      rules: { 'no-console': 'off', 'typescript/no-base-to-string': 'error' },
    },
    {
      files: ['*.config.ts', 'examples/**', 'test/fixtures/**', '{bench,scripts}/**/*environment.ts'],
      rules: { 'import/no-default-export': 'off' },
    },
    {
      files: ['**/*.test.ts'],
      rules: {
        'no-restricted-imports': 'off',
        'typescript/no-base-to-string': 'off',
        'typescript/restrict-template-expressions': 'off',
      },
    },
  ],
  ignorePatterns: ['dist', '/runs', 'node_modules'],
})
