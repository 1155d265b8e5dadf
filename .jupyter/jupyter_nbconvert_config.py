# Executed notebooks keep their outputs and nothing that differs from machine to machine.
c = get_config()  # noqa: F821
c.ExecutePreprocessor.record_timing = False
c.ExecutePreprocessor.store_widget_state = False
c.ExecutePreprocessor.timeout = 60
c.ClearMetadataPreprocessor.enabled = True
c.ClearMetadataPreprocessor.clear_cell_metadata = False
c.ClearMetadataPreprocessor.preserve_nb_metadata_mask = {"kernelspec"}
c.ExecutePreprocessor.kernel_manager_class = "classroom.kernels.AsyncWarmKernelManager"
c.Exporter.preprocessors = ["nbconvert.preprocessors.CoalesceStreamsPreprocessor"]
